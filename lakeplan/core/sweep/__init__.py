"""What a sweep may take, and when: pure rules over commit graphs, rules, moments and settings."""
