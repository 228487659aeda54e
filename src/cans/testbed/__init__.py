"""Real processes on shaped links with emulated device speeds: experiments and the demo."""
