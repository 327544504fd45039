"""A translator as a SavedModel: signatures, weights, warm-up requests."""
