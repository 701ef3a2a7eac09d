#!/usr/bin/env bash
# Checks the lengths of lines: at most 120 columns for code, and 100 for comment lines and Markdown.
# A tab counts as one column. Not checked are Markdown tables, code blocks and lines with a link,
# and comments with a URL or preformatted text (// and a tab).
#
#   ci/lines.sh [FILE...]     default: all files of the repository except those below
set -euo pipefail
cd "$(dirname "$0")/.."

# Files that are not checked, as regular expressions, each with the reason.
exceptions=(
  '^cverbs/libcalls\.h$'                  # generated
  '^docs/performance(-details)?\.md$'      # generated
  '^docs/conformance/table\.md$'          # generated
  '^internal/perf/report/fuzz_test\.go$'  # seeds: documents of one line
)

if [ $# = 0 ]; then
  mapfile -t files < <(git ls-files -co --exclude-standard '*.go' '*.c' '*.h' '*.md' | grep -vE "$(IFS='|'; echo "${exceptions[*]}")")
  set -- "${files[@]}"
fi
awk '
  FNR == 1 { fenced = 0 }
  { limit = 120 }
  FILENAME ~ /\.md$/ {
    if (/^```/) { fenced = !fenced; next }
    if (fenced || /^\|/ || /^(    |\t)/ || /\]\(/) next
    limit = 100
  }
  FILENAME !~ /\.md$/ && /^[ \t]*\/\/ / && !/^[ \t]*\/\/ +#/ && !/:\/\// { limit = 100 }
  length($0) > limit { printf "%s:%d: %d columns, the limit is %d\n", FILENAME, FNR, length($0), limit; bad = 1 }
  END { exit bad }
' "$@"
