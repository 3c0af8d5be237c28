"""The parts of a recipe, one file a slot, and all bases to write a method with."""
