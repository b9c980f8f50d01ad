"""What adapting the block size could gain, before anything is trained."""
