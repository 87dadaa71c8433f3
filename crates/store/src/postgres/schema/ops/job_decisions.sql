-- What an UPDATE of a job's details means: a patch, laid over what is there, member by member (J7).

-- The members in which a statement's details differ from those that it saw. What it leaves out stays.
CREATE FUNCTION waypost.job_patch(p_saw jsonb, p_says jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_patch jsonb;
  v_lines jsonb;
BEGIN
  PERFORM waypost.check_json('details', coalesce(p_says, 'null'), 1048576, true);
  SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}') INTO v_patch FROM jsonb_each(p_says) m WHERE p_saw -> m.key IS DISTINCT FROM m.value;
  v_lines := v_patch -> 'console_log';
  IF v_lines IS NULL THEN
    RETURN v_patch;
  ELSIF jsonb_typeof(v_lines) <> 'array' THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: details.console_log: is of type %s', jsonb_typeof(v_lines)), 'Give a list of lines.',
        'details');
  END IF;
  -- The last hundred lines.
  RETURN v_patch || jsonb_build_object('console_log', (SELECT coalesce(jsonb_agg(l.line ORDER BY l.place), '[]')
    FROM jsonb_array_elements(v_lines) WITH ORDINALITY l(line, place) WHERE l.place > jsonb_array_length(v_lines) - 100));
END $$;

-- Decisions about hosts, with who and when. Of one pause the first counts; a later pause, which another attempt came to, may decide anew.
CREATE FUNCTION waypost.job_decisions(p_run waypost.runs, p_patch jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c_field CONSTANT text := 'details.maintenance_blocker_resolutions';
  v_given jsonb := p_patch -> 'maintenance_blocker_resolutions';
  v_saved jsonb := coalesce(p_run.details -> 'maintenance_blocker_resolutions', '{}');
  v_blockers jsonb := (p_run.details || p_patch) -> 'current_blockers';
  v_host text;
  v_about jsonb;
  v_word text;
BEGIN
  IF v_given IS NULL THEN
    RETURN p_patch;
  ELSIF jsonb_typeof(v_given) <> 'object' THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: is of type %s', c_field, jsonb_typeof(v_given)),
        'Give an object: a decision for each host.', 'details');
  END IF;
  FOR v_host, v_about IN SELECT g.key, g.value FROM jsonb_each(v_given) g WHERE v_saved -> g.key IS DISTINCT FROM g.value ORDER BY g.key LOOP
    v_word := btrim(CASE jsonb_typeof(v_about) WHEN 'string' THEN v_about #>> '{}' WHEN 'object' THEN v_about ->> 'decision' END);
    IF coalesce(v_word, '') = '' OR char_length(v_word) > 255 OR octet_length(v_host) NOT BETWEEN 1 AND 255 THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: %s needs a decision', c_field, quote_literal(left(v_host, 80))),
        'Give a word such as skip, or {"decision": "skip"}, at most 255 characters.', 'details');
    ELSIF p_run.state / 1000 = 4 AND jsonb_typeof(v_blockers) = 'object' AND v_blockers <> '{}' AND NOT v_blockers ? v_host THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: nothing blocks %s', c_field, quote_literal(left(v_host, 80))),
        'Blocked are: ' || (SELECT string_agg(b.host, ', ' ORDER BY b.host) FROM jsonb_object_keys(v_blockers) b(host)), 'details');
    ELSIF jsonb_typeof(v_blockers -> v_host -> 'choices') = 'array' AND v_blockers -> v_host -> 'choices' <> '[]'
        AND NOT v_blockers -> v_host -> 'choices' ? v_word THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: %s: %s is no choice', c_field, v_host, quote_literal(v_word)),
        'Allowed: ' || (SELECT string_agg(c.word, ', ') FROM jsonb_array_elements_text(v_blockers -> v_host -> 'choices') c(word)), 'details');
    ELSIF p_run.state / 1000 <> 4 OR v_saved -> v_host -> 'attempt' = to_jsonb(p_run.attempt) THEN
      CONTINUE WHEN v_saved -> v_host ->> 'decision' = v_word;
      IF NOT v_saved ? v_host THEN
        PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s does not wait for decisions', p_run.run_id), 'Decide while it is paused.',
            'details');
      END IF;
      PERFORM waypost.refuse('WP409', format('DECIDED: %s was decided already: %s by %s', v_host, v_saved -> v_host ->> 'decision',
          v_saved -> v_host ->> 'by'),
        'The first decision counts.', 'details');
    END IF;
    v_saved := v_saved || jsonb_build_object(v_host, CASE jsonb_typeof(v_about) WHEN 'object' THEN v_about ELSE '{}' END
        || jsonb_build_object('decision', v_word,
      'by', coalesce(v_about ->> 'by', session_user), 'reason', v_about ->> 'reason', 'at', to_char(waypost.now() AT TIME ZONE 'UTC',
          'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'attempt', p_run.attempt));
  END LOOP;
  RETURN p_patch || jsonb_build_object('maintenance_blocker_resolutions', v_saved);
END $$;
