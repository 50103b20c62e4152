"""The servers Pagewire is compared with, and the comparison."""
