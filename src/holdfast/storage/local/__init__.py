"""A store on a local or mounted disk."""
