"""Methods of `Dataset` that say what a version is: numbers, files, differences of two versions."""
