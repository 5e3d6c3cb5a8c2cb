"""From cells to numbers: one column, whole tables, missing values, pictures, arrays."""
