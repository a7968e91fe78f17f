# Passes the output of `node --test` on, in either of its forms, and appends "PASSED FAILED SKIPPED" to the file named by the
# variable counts. Skipped and todo tests are named, and fail like failed ones.
{ print; fflush() }
/# (SKIP|TODO)/ { sub(/^[ \t]*/, ""); names[++named] = $0 }
/^(#|ℹ) pass [0-9]+/ { passed += $3 }
/^(#|ℹ) (fail|cancelled) [0-9]+/ { failed += $3 }
/^(#|ℹ) (skipped|todo) [0-9]+/ { skipped += $3 }
END {
	for (i = 1; i <= named; i++) print "skipped: " names[i]
	if (passed + failed + skipped == 0) { print "no test was run"; failed = 1 }
	print passed + 0, failed + 0, skipped + 0 >> counts
	exit (failed > 0 || skipped > 0) ? 1 : 0
}
