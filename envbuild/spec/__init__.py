"""Files written by users (specs, targets, recipes, projects) and the resolution made from them."""
