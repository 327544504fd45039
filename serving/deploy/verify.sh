#!/usr/bin/env bash
# Tries a running server: the protocol tests, some minutes, then a load. Prints
# a table to paste into an issue.
#
#   python tests/support/serving/toy_model.py models/toy     # serve this as `toy`; then
#   serving/deploy/verify.sh ADDRESS [REST_ADDRESS]  # localhost:8500, :8501
#
# The tests are for a server without --enable_batching. With it scalars are
# refused, and late calls end with another code. TESTS=no leaves the tests out.
#
# Environment, each optional:
#   SERVER     what runs at ADDRESS, for the table: image, tag and digest
#   MODEL      the model for the load, if not `toy`, and TEXT, a text for it
#   DURATION   seconds of load for each number of clients, 10 if not given
#   PYTHON     an interpreter with keras-attn's extra `test` and the extra
#              `server` of keras-attn-serving, .venv/bin/python if not given
set -uo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
fi
address=$1 rest=${2:-}
model=${MODEL:-toy}
cd "$(dirname "$0")/../.." || exit
export PYTHONPATH=$PWD:$PWD/serving${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-.venv/bin/python}
"$python" -c 'import keras_attn_serving, pytest, tensorflow' || {
    echo "An interpreter with the test dependencies is needed: make" \
        ".venv/test, or name one as PYTHON. Received: $python." >&2
    exit 2
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$python" - "$address" "$model" << 'END' || exit
import sys
from keras_attn_serving import Client
with Client(sys.argv[1], model=sys.argv[2]) as client:
    client.wait_until_ready(30)
    client.status()
END

if [ "${TESTS:-yes}" = no ]; then
    echo "left out" > "$log"
else
    KERAS_ATTN_SERVING_ADDRESS=$address \
        KERAS_ATTN_SERVING_REST_ADDRESS=$rest "$python" -m pytest -rfE \
        tests/serving/test_{client_rest,client_stream,errors,limits}.py \
        tests/serving/test_{predict,rest,server}.py | tee "$log" >&2
fi
passed=$?

# Prints yes or no: does the page $2 at the REST address match $1?
has() {
    "$python" - "$rest" "$1" "$2" << 'END'
import re, sys, urllib.request
rest, pattern, path = sys.argv[1:]
try:
    with urllib.request.urlopen(f"http://{rest}{path}", timeout=10) as page:
        print("yes" if re.search(pattern, page.read().decode()) else "no")
except OSError as error:
    print(f"no: {error}")
END
}

echo "| | |"
echo "|---|---|"
echo "| server | ${SERVER:-not named, see SERVER} |"
"$python" - "$address" "$model" << 'END'
import platform, sys
import grpc
import keras_attn_serving
with keras_attn_serving.Client(sys.argv[1], model=sys.argv[2]) as client:
    states = [f"{x.version} {x.state}" for x in client.status()]
print(f"| model | {sys.argv[2]}, version {', '.join(states)} |")
print(
    f"| client | keras-attn-serving {keras_attn_serving.__version__}, "
    f"grpcio {grpc.__version__}, Python {platform.python_version()} |"
)
END
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null)
echo "| GPU of this machine | ${gpu:-none} |"
echo "| protocol tests | $(tail -n 1 "$log" | sed 's/^=* *//; s/ *=*$//') |"
if [ -n "$rest" ]; then
    echo "| ready by REST | $(has signature_def "/v1/models/$model/metadata") |"
    # The names that the alerts ask for.
    grep -oE ':tensorflow[a-z_:]+' serving/deploy/alerts.yaml | sort -u |
        while read -r metric; do
            echo "| \`$metric\` | $(has "(?m)^$metric\\b" \
                /monitoring/prometheus/metrics) |"
        done
fi
echo
"$python" tests/benchmarks/load.py "$address" --model "$model" \
    --text "${TEXT:-hello world}" --seconds "${DURATION:-10}"
loaded=$?
grep -E '^(FAILED|ERROR)' "$log" | sed '1i\\nFailed:\n' | sed 's/^FAILED\|^ERROR/-/'
[ $passed = 0 ] && [ $loaded = 0 ]
