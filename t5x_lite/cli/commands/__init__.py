"""One function a command, marked by `@subcommand`: `t5x-lite NAME ...` calls it with the other arguments."""
