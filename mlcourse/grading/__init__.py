"""What instructors run: the labs made from their sources, and the steps that nbgrader takes with them."""
