"""Programs for one kind of accelerator, where the compiler alone would be slow or take too much memory."""
