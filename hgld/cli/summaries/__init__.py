"""Terminal texts of what the commands have done, made from the dataclasses that the library returns."""
