-- A lifecycle that is there stays as it is: its runs were judged by it. These come after the shipped ones, since a file's first triggers are
-- obeyed by whoever makes it; the engine adds others over a connection that does not obey them (link/open.rs).
CREATE TRIGGER by_hand_lifecycles_add BEFORE INSERT ON lifecycles
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycles_change BEFORE UPDATE ON lifecycles
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycles_delete BEFORE DELETE ON lifecycles
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycle_states_add BEFORE INSERT ON lifecycle_states
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycle_states_change BEFORE UPDATE ON lifecycle_states
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycle_states_delete BEFORE DELETE ON lifecycle_states
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycle_moves_add BEFORE INSERT ON lifecycle_moves
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycle_moves_change BEFORE UPDATE ON lifecycle_moves
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_lifecycle_moves_delete BEFORE DELETE ON lifecycle_moves
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_state_codes_add BEFORE INSERT ON state_codes
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_state_codes_change BEFORE UPDATE ON state_codes
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_state_codes_delete BEFORE DELETE ON state_codes
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_starts_add BEFORE INSERT ON starts
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_starts_change BEFORE UPDATE ON starts
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_starts_delete BEFORE DELETE ON starts
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_steps_add BEFORE INSERT ON steps
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_steps_change BEFORE UPDATE ON steps
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
CREATE TRIGGER by_hand_steps_delete BEFORE DELETE ON steps
  BEGIN SELECT RAISE(ABORT, 'IMMUTABLE: a lifecycle stays as it was added; a new version comes by `waypost lifecycle add`'); END;
