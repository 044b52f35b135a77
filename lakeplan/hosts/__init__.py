"""GitHub and GitLab: pull requests, their comments and plans. Knows nothing of trees and lakeFS servers: what
a comment says and what is applied is decided above it."""

__all__ = ["comments", "github", "gitlab", "protocols"]
