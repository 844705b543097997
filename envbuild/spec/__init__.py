"""What people write (specs, targets, recipes, projects) and the resolution that comes of it."""
