"""Parsing of cells into numbers: single columns, whole tables, missing values, images, arrays."""
