#!/bin/bash
# Worker script: scripts/odooops/worker_execute.sh

MAX_RETRIES=3
RETRY_COUNT=0
BACKOFF_SECONDS=5

while [ $RETRY_COUNT -lt $MAX_RETRIES ]; do
    # Claim run
    RUN_JSON=$(psql "$SUPABASE_DB_URL" -t -A -c "
        SELECT row_to_json(r) FROM (
            SELECT * FROM ops.claim_next_run('worker-$(hostname)')
        ) r;
    ")

    if [ -z "$RUN_JSON" ]; then
        echo "No queued runs available"
        exit 0
    fi

    RUN_ID=$(echo "$RUN_JSON" | jq -r '.run_id')
    GIT_SHA=$(echo "$RUN_JSON" | jq -r '.git_sha')

    # Execute workflow
    if execute_workflow "$RUN_ID" "$GIT_SHA"; then
        # Success
        psql "$SUPABASE_DB_URL" -c "SELECT ops.finish_run('$RUN_ID', 'success');"
        exit 0
    else
        # Failure
        RETRY_COUNT=$((RETRY_COUNT + 1))

        if [ $RETRY_COUNT -lt $MAX_RETRIES ]; then
            echo "Retry $RETRY_COUNT/$MAX_RETRIES in $BACKOFF_SECONDS seconds..."
            sleep $BACKOFF_SECONDS
            BACKOFF_SECONDS=$((BACKOFF_SECONDS * 2))  # Exponential backoff
        else
            echo "Max retries exceeded, marking as failed"
            psql "$SUPABASE_DB_URL" -c "
                SELECT ops.finish_run('$RUN_ID', 'failed', '{
                    \"error\": \"Max retries exceeded\",
                    \"retry_count\": $RETRY_COUNT
                }'::jsonb);
            "
            exit 1
        fi
    fi
done
