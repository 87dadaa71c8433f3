-- A stand-in.
CREATE FUNCTION waypost.moved_by_hand(was waypost.runs, is_now waypost.runs) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not yet'; END $$;
