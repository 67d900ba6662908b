"""Arrays, compiled loops, linear algebra and threads. Nothing here knows what a trial is."""
