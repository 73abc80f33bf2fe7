"""What a machine can do, and what a step of the model asks of it: measured, counted, predicted."""
