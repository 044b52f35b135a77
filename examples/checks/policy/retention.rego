# A policy for lakeplan. Run it with: conftest test --parser json --policy policy --output json -
package main

import rego.v1

shortest := 14

changed contains repository if {
	some repository in input.repositories
	repository.after != null
	repository.action != "none"
}

deny contains {"msg": text, "repository": name} if {
	some repository in changed
	repository.after.default_retention_days < shortest
	name := sprintf("%s/%s", [repository.server, repository.name])
	text := sprintf("keeps commits for %d days, but the minimum is %d", [repository.after.default_retention_days, shortest])
}

warn contains {"msg": text, "repository": name} if {
	some repository in changed
	count(repository.after.branches) == 0
	name := sprintf("%s/%s", [repository.server, repository.name])
	text := "has no branch rules"
}
