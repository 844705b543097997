"""What tests share: servers, small images, facts and locks, and the command line."""
