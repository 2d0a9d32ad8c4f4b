#!/bin/sh
# Judges the script by what it prints. What was written to the reward files meanwhile does not count.
reward=1
while read -r a b sum; do
    printed=$(timeout 5 sh /app/add.sh "$a" "$b" 2>/dev/null </dev/null)
    if [ "$printed" != "$sum" ]; then
        echo "add.sh $a $b printed '$printed', not $sum"
        reward=0
    fi
done <"$CASES"
rm -rf /logs/verifier/reward.*
echo "$reward" >/logs/verifier/reward.txt
