"""The model: textbook modules (training, oracle) and their serving form (absorbed, paged)."""
