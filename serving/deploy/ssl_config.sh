#!/usr/bin/env bash
# Writes a file for --ssl_config_file, TLS on the gRPC port, from PEM files:
#
#   ssl_config.sh KEY CERTIFICATE > ssl.pbtxt
#   ssl_config.sh KEY CERTIFICATE CLIENTS_CA > ssl.pbtxt
#
# With CLIENTS_CA only clients with a certificate of that authority are served.
# The result is the text of tensorflow.serving.SSLConfig. It holds the private
# key; the server reads it as user 65534 (Dockerfile).
set -euo pipefail

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
fi

# Prints a field: a string for each line, which the parser joins.
field() {
    echo "$1:"
    sed 's/\r$//; s/.*/  "&\\n"/' "$2"
}

for file in "$@"; do
    grep -q -e '-----BEGIN' "$file" || {
        echo "A PEM file is needed, which has a line -----BEGIN." \
            "Received: $file." \
            "openssl x509 and openssl pkey convert other formats." >&2
        exit 2
    }
done
field server_key "$1"
field server_cert "$2"
if [ $# = 3 ]; then
    field custom_ca "$3"
    echo "client_verify: true"
fi
