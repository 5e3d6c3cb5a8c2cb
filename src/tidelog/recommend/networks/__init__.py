"""Networks over a catalogue of items and over histories."""
