"""The decoder and policies of this package inside other libraries."""
