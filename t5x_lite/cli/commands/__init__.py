"""One function a command, marked by `@command`: `t5x-lite NAME ...` calls it with the arguments behind its name."""
