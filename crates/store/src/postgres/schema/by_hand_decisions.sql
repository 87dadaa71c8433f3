-- Decisions by hand: in which members of a run's details they stand its lifecycle says. They are judged as the engine judges them
-- (rules/decisions.rs).

-- What a statement changes of a run's details, as far as it may. What is asked stays while the run waits, and what is decided about it is what
-- the engine would take; whoever says that a run is resolved has decided about everything that it waits for.
CREATE FUNCTION waypost.decided_by_hand(was waypost.runs, became waypost.runs, p_patch jsonb) RETURNS jsonb LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_words jsonb := waypost.decisions(was.state);
  v_waits boolean := was.state / 1000 = 4 AND coalesce(was.details -> (v_words ->> 'waiting') = 'true', false);
  v_goes_on boolean := was.state / 1000 = 4 AND became.state / 1000 <> 4;
  v_resolves boolean := v_waits AND became.state / 1000 = 2 AND became.resolved AND NOT became.forced;
  v_asks text := CASE WHEN was.state / 1000 = 4 THEN (SELECT w.value FROM jsonb_each_text(v_words) w WHERE w.key <> 'given' AND p_patch ? w.value
    AND NOT (w.key = 'waiting' AND v_goes_on) LIMIT 1) END;
  v_patch jsonb;
BEGIN
  IF v_asks IS NOT NULL THEN
    PERFORM waypost.refuse('WP409', format('IMMUTABLE: details.%s of %s stays while it waits: it says what is asked', v_asks, was.run_id),
      format('Decide about it in details.%s, or force it.', v_words ->> 'given'), 'details');
  ELSIF v_resolves AND jsonb_typeof(p_patch -> (v_words ->> 'given')) IS DISTINCT FROM 'object' THEN
    PERFORM waypost.check_decided(was, was.details, v_words);
  END IF;
  v_patch := waypost.take_decisions(was, p_patch);
  IF v_resolves THEN
    PERFORM waypost.check_decided(was, was.details || v_patch, v_words);
  END IF;
  IF v_waits AND v_goes_on AND became.state < 5000 THEN
    v_patch := v_patch || jsonb_build_object(v_words ->> 'waiting', false);
  END IF;
  RETURN v_patch;
END $$;

-- There is a decision about everything that is asked, and one at least was made in this pause.
CREATE FUNCTION waypost.check_decided(p_run waypost.runs, p_details jsonb, p_words jsonb) RETURNS void LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_subjects text[] := waypost.undecided(p_run, p_details, p_words);
BEGIN
  IF v_subjects <> '{}' OR NOT waypost.decides_now(p_run, p_details, p_words) THEN
    PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s waits for decisions%s', p_run.run_id, coalesce(' about '
        || nullif(array_to_string(v_subjects, ', '), ''), '')),
      format('Save them in details.%s, or force it.', p_words ->> 'given'), 'details');
  END IF;
END $$;

-- What a run asks about and nobody has decided. The answer to a question (`ask`) counts in its own pause alone.
CREATE FUNCTION waypost.undecided(p_run waypost.runs, p_details jsonb, p_words jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE
  SET search_path = pg_catalog, pg_temp
  RETURN ARRAY(SELECT a.subject FROM jsonb_each(CASE WHEN jsonb_typeof(p_details -> (p_words ->> 'asked')) = 'object'
      THEN p_details -> (p_words ->> 'asked') ELSE '{}' END) a(subject, about)
    WHERE coalesce(jsonb_typeof(p_details -> (p_words ->> 'given')) <> 'object', true)
      OR NOT p_details -> (p_words ->> 'given') ? a.subject
      OR coalesce(jsonb_typeof(a.about -> 'ask') = 'string', false)
        AND p_details -> (p_words ->> 'given') -> a.subject -> 'attempt' IS DISTINCT FROM to_jsonb(p_run.attempt) ORDER BY a.subject);

-- Whether one of the decisions was made in this pause: a pause ends with a claim or a retry, which counts an attempt.
CREATE FUNCTION waypost.decides_now(p_run waypost.runs, p_details jsonb, p_words jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE
  SET search_path = pg_catalog, pg_temp
  RETURN coalesce(jsonb_path_exists(p_details -> (p_words ->> 'given'), '$.*.attempt ? (@ == $attempt)',
    jsonb_build_object('attempt', p_run.attempt)), false);

-- Decisions by subject, such as a host, with who and when. Of one pause the first counts; a later pause may decide anew.
CREATE FUNCTION waypost.take_decisions(p_run waypost.runs, p_patch jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_words jsonb := waypost.decisions(p_run.state);
  v_field text := 'details.' || (v_words ->> 'given');
  v_given jsonb := p_patch -> (v_words ->> 'given');
  v_kept jsonb := p_run.details -> (v_words ->> 'given');
  v_saved jsonb := CASE WHEN jsonb_typeof(v_kept) = 'object' THEN v_kept ELSE '{}' END;
  v_asked jsonb := p_run.details -> (v_words ->> 'asked');
  v_is_waiting boolean := p_run.state / 1000 = 4;
  v_now text := to_char(waypost.now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
  v_until text;
  v_subject text;
  v_about jsonb;
  v_word text;
  v_choices text[];
BEGIN
  IF v_given IS NULL THEN
    RETURN p_patch;
  ELSIF jsonb_typeof(v_given) <> 'object' THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: is of type %s', v_field, jsonb_typeof(v_given)),
        'Give an object: a decision for each subject.', 'details');
  END IF;
  FOR v_subject, v_about IN SELECT g.key, g.value FROM jsonb_each(v_given) g WHERE v_saved -> g.key IS DISTINCT FROM g.value ORDER BY g.key LOOP
    v_word := btrim(CASE jsonb_typeof(v_about) WHEN 'string' THEN v_about #>> '{}'
      WHEN 'object' THEN CASE jsonb_typeof(v_about -> 'decision') WHEN 'string' THEN v_about ->> 'decision' END END, E' \t\n\r');
    v_choices := CASE WHEN jsonb_typeof(v_asked -> v_subject -> 'choices') = 'array' THEN ARRAY(SELECT c.choice #>> '{}'
      FROM jsonb_array_elements(v_asked -> v_subject -> 'choices') c(choice) WHERE jsonb_typeof(c.choice) = 'string') END;
    IF coalesce(v_word, '') = '' OR char_length(v_word) > 255 OR octet_length(v_subject) NOT BETWEEN 1 AND 255 THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: %s needs a decision', v_field, quote_literal(left(v_subject, 80))),
        'Give a word such as skip, or {"decision": "skip"}, at most 255 characters.', 'details');
    ELSIF v_is_waiting AND jsonb_typeof(v_asked) = 'object' AND v_asked <> '{}' AND NOT v_asked ? v_subject THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: nothing is asked about %s', v_field, quote_literal(left(v_subject, 80))),
        'Blocked are: ' || (SELECT string_agg(b.subject, ', ' ORDER BY b.subject) FROM jsonb_object_keys(v_asked) b(subject)), 'details');
    ELSIF v_choices <> '{}' AND v_word <> ALL (v_choices) THEN
      PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: %s: %s is no choice', v_field, v_subject, quote_literal(v_word)),
        'Allowed: ' || array_to_string(v_choices, ', '), 'details');
    ELSIF NOT v_is_waiting OR v_saved -> v_subject -> 'attempt' = to_jsonb(p_run.attempt) THEN
      CONTINUE WHEN v_saved -> v_subject ->> 'decision' = v_word;
      IF NOT v_saved ? v_subject THEN
        PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s does not wait for decisions', p_run.run_id), 'Decide while it is paused.',
            'details');
      END IF;
      PERFORM waypost.refuse('WP409', format('DECIDED: %s was decided already: %s by %s', v_subject, v_saved -> v_subject ->> 'decision',
          v_saved -> v_subject ->> 'by'),
        'The first decision counts.', 'details');
    END IF;
    -- Times of questions are written so that their text sorts as they do.
    v_until := CASE WHEN jsonb_typeof(v_asked -> v_subject -> 'ask') = 'string' THEN v_asked -> v_subject ->> 'until' END;
    IF v_until ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$' AND v_until COLLATE "C" <= v_now THEN
      PERFORM waypost.refuse('WP409', format('INVALID_TRANSITION: %s could be answered until %s', v_subject, v_until),
        'The run goes on without an answer.', 'details');
    END IF;
    v_saved := v_saved || jsonb_build_object(v_subject, CASE jsonb_typeof(v_about) WHEN 'object' THEN v_about ELSE '{}' END
        || jsonb_build_object('decision', v_word,
      'by', coalesce(v_about ->> 'by', session_user), 'reason', v_about ->> 'reason', 'at', v_now, 'attempt', p_run.attempt));
  END LOOP;
  RETURN p_patch || jsonb_build_object(v_words ->> 'given', v_saved);
END $$;
