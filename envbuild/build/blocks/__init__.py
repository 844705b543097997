"""Building blocks of recipes, and the one module that imports HPCCM."""
