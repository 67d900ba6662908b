"""How the report draws: markup, numbers, axes and figures."""
