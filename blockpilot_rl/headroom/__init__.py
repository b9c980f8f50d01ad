"""How much adapting the block size could gain, before anything is trained."""
