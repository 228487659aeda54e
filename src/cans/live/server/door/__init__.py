"""What a call passes before a service sees it: who calls, and how much they may hold."""
