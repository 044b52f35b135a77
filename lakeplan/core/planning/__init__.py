"""From desired and actual to a plan: verdicts, impact, gates. Pure; nothing here talks to a server."""
