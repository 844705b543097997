"""Building: plans of units, the building blocks of recipes, and the engines that run them."""
