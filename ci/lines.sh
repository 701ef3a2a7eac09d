#!/usr/bin/env bash
# Checks line lengths, a tab counting as one column: 120 for code, 100 for comments that stand alone and for Markdown.
# Not checked: Markdown tables, code blocks and lines with a link; comments with a URL or preformatted text (// and a tab).
#
#   ci/lines.sh [FILE...]     default: all files of the repository outside the exceptions below
set -euo pipefail
cd "$(dirname "$0")/.."

# Paths, as regular expressions, and the reason.
exceptions=(
  '^cverbs/stub\.go$'                     # generated; its comments are those of the real files
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
