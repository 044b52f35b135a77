"""Plans and applies: gather, judge, impact, gates, writing; drift, import, rollback."""
