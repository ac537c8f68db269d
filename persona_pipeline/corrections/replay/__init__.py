"""Corrections over stored messages: what each threshold would have done to them, and which threshold keeps a stated risk."""
