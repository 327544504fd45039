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

# Prints a field: a string for each line, which the parser joins. What stands
# around the blocks is a comment, which may have quotes.
field() {
    echo "$1:"
    sed -n '/^-----BEGIN/,/^-----END/{s/\r$//; s/.*/  "&\\n"/; p}' "$2"
}

for file in "$@"; do
    grep -q -e '-----BEGIN' "$file" || {
        echo "A PEM file is needed, which has a line -----BEGIN." \
            "Received: $file." \
            "openssl x509 and openssl pkey convert other formats." >&2
        exit 2
    }
done
grep -q 'PRIVATE KEY' "$1" || {
    echo "KEY must be a PEM file of a private key. Received: $1." >&2
    exit 2
}
for file in "${@:2}"; do
    grep -q 'BEGIN.*CERTIFICATE' "$file" || {
        echo "A PEM file of a certificate is needed. Received: $file." >&2
        exit 2
    }
done
if [ "$(openssl pkey -in "$1" -pubout 2> /dev/null)" != \
    "$(openssl x509 -in "$2" -noout -pubkey 2> /dev/null)" ]; then
    echo "KEY must be that of CERTIFICATE. Received: $1 and $2." >&2
    exit 2
fi
field server_key "$1"
field server_cert "$2"
if [ $# = 3 ]; then
    field custom_ca "$3"
    echo "client_verify: true"
fi
