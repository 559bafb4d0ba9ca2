"""Workers as processes of this machine, forked by a zygote."""
