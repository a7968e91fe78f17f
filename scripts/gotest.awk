# Reads `go test -v ./...` and prints a line for each package, the whole output of those that failed, and the names of skipped
# tests. Appends "PASSED FAILED SKIPPED" to the file named by the variable counts. Fails if anything failed or was skipped.
/^=== (RUN|PAUSE|CONT) / { next }
/^ *--- PASS: / { passed++; next }
/^ *--- SKIP: / { skips[++skipped] = $3; here++; text = text $0 "\n"; next }
/^ *--- FAIL: / { failed++; text = text $0 "\n"; next }
/^ok  \t/ {
	print; fflush()
	for (i = skipped - here + 1; i <= skipped; i++) skips[i] = $2 " " skips[i]
	text = ""; here = 0
	next
}
/^\?   \t/ || /^\t.*coverage: / { text = ""; next }
/^FAIL\t/ {
	printf "%s", text
	print; fflush()
	for (i = skipped - here + 1; i <= skipped; i++) skips[i] = $2 " " skips[i]
	broken++
	text = ""; here = 0
	next
}
{ text = text $0 "\n" }
END {
	if (text != "" && text != "FAIL\n") printf "%s", text
	if (broken > 0 && failed == 0) failed = broken # a package that did not build, or a panic
	for (i = 1; i <= skipped; i++) print "skipped: " skips[i]
	print passed + 0, failed + 0, skipped + 0 >> counts
	exit (failed > 0 || skipped > 0 || broken > 0) ? 1 : 0
}
