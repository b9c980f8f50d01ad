"""Our decoder and policies inside other libraries."""
