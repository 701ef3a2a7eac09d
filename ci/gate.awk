# Shortens the output of go test -v: a line for each package, all that a failed test printed, nothing of others.
# Counts packages and tests into the file sums. Other output is printed if it is not go test's.
/^=== (RUN|PAUSE|CONT|NAME) / { name = $3; sub(/\/.*/, "", name); next }
/^--- (PASS|SKIP|FAIL): / {
  name = $3
  count[$2]++
  if ($2 != "FAIL:") { delete text[name]; name = "" }
}
/^ *--- (PASS|SKIP): / || /^(PASS|FAIL)$/ || /no test files\]$/ || /^\t.*coverage: / { next }
/^(ok|FAIL)[ \t]/ {
  if ($1 == "ok") packages++
  else {
    failed++
    for (n in text) printf "%s", text[n]
  }
  delete text
  name = ""
  print part ": " $0
  fflush()
  next
}
{ text[name] = text[name] $0 "\n" }
END {
  for (n in text) printf "%s", text[n]
  if (packages + failed)
    printf "packages: %d ok, %d failed; tests: %d passed, %d failed, %d skipped; ", packages, failed,
      count["PASS:"], count["FAIL:"], count["SKIP:"] >sums
  else printf "" >sums
}
