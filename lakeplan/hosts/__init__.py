"""GitHub and GitLab: pull requests, their comments and plans. This room knows nothing of trees and lakeFS
servers. The rooms above it decide what a comment says and what is applied."""

__all__ = ["github", "gitlab", "protocols"]
