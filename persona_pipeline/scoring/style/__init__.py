"""How an agent writes: numbers of each message, what is usual of them, and an alarm when new messages differ. No judge."""
