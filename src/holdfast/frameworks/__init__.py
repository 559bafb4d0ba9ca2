"""The only code that imports ML frameworks; each is loaded when first used."""
