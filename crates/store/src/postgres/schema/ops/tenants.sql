-- Tenants in SQL: which role was granted which, and whose rows a statement is about. `SET waypost.tenant = 'shop'` chooses; anybody can set
-- that to anything, so it is judged wherever it is read.

CREATE SCHEMA ops;
REVOKE ALL ON SCHEMA ops FROM PUBLIC;

-- A role that lost its last one has none: who was never granted any has `default`. Kept by the role's number: a new role of an old name was
-- granted nothing.
CREATE TABLE waypost.tenant_grants(role regrole NOT NULL, tenant text NOT NULL, revoked_at timestamptz, PRIMARY KEY(role, tenant));

-- Who asks: whoever logged in, or the role that they have set. The server says both; a function with its owner's rights changes the current
-- user and neither of these.
CREATE FUNCTION waypost.caller() RETURNS name LANGUAGE sql STABLE PARALLEL RESTRICTED
  RETURN CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END;

CREATE FUNCTION waypost.check_tenant(p_field text, p_tenant text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF coalesce(octet_length(p_tenant) NOT BETWEEN 1 AND 255 OR p_tenant ~ '[/[:cntrl:]]' OR p_tenant = '*', true) THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: %s: is no tenant', p_field),
      'Give 1 to 255 bytes of text without control characters and without a /; * is none.', p_field);
  END IF;
END $$;

-- What concerns the caller of what was granted; `holds`: it may choose that tenant. The rest shows that tenants were granted to it, or to who
-- logged in: a role that they set does not give them back the `default` of those to whom none was. Read by functions of the schema's owner, who
-- is the current user there.
CREATE VIEW waypost.callers_grants AS
  SELECT g.tenant, g.revoked_at IS NULL AND pg_has_role(waypost.caller(), g.role, 'USAGE') AS holds FROM waypost.tenant_grants g
    WHERE pg_has_role(waypost.caller(), g.role, 'MEMBER')
      OR pg_has_role(session_user, g.role, 'MEMBER') AND NOT pg_has_role(session_user, current_user, 'USAGE');

-- The tenant that the caller has chosen, if it may. Whoever has the rights of the schema's owner, superusers among them, may choose any.
CREATE FUNCTION waypost.tenant() RETURNS text LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_tenant text := coalesce(nullif(current_setting('waypost.tenant', true), ''), 'default');
BEGIN
  IF pg_has_role(waypost.caller(), current_user, 'USAGE') THEN
    IF v_tenant <> 'default' THEN
      PERFORM waypost.check_tenant('waypost.tenant', v_tenant);
    END IF;
  ELSIF NOT (SELECT coalesce(bool_or(g.holds AND g.tenant = v_tenant), v_tenant = 'default') FROM waypost.callers_grants g) THEN
    PERFORM waypost.refuse('42501', format('FORBIDDEN: waypost.tenant: tenant %s was not granted to role %s', quote_literal(left(v_tenant, 80)),
        quote_ident(waypost.caller())),
      coalesce((SELECT format('Granted are: %s. Choose one: SET waypost.tenant = %s', left(string_agg(DISTINCT g.tenant, ', '), 500),
          quote_literal(min(g.tenant))) FROM waypost.callers_grants g WHERE g.holds HAVING count(*) > 0),
        'None is granted to it. The schema''s owner may: SELECT waypost.grant_tenant(…).'), 'waypost.tenant');
  END IF;
  RETURN v_tenant;
END $$;

-- Whose rows the caller sees: the chosen tenant's. Null is everybody's, for who may choose any and has chosen none.
CREATE FUNCTION waypost.seen_tenant() RETURNS text LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF coalesce(current_setting('waypost.tenant', true), '') = '' AND pg_has_role(waypost.caller(), current_user, 'USAGE') THEN
    RETURN NULL;
  END IF;
  RETURN waypost.tenant();
END $$;

-- What is the installation's is for those who see all, and for those to whom no tenants are granted: then there is one.
CREATE FUNCTION waypost.check_installation(p_what text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT pg_has_role(waypost.caller(), current_user, 'USAGE')
      AND EXISTS (SELECT 1 FROM waypost.callers_grants) THEN
    PERFORM waypost.refuse('42501', format('FORBIDDEN: %s concerns all tenants, and some were granted to role %s', p_what,
        quote_ident(waypost.caller())), 'Servers and workers do it by themselves; else ask the schema''s owner.');
  END IF;
END $$;

-- Schedules and executions of a tenant are called TENANT/NAME, but for those of `default`. Whose a stored name is:
CREATE FUNCTION waypost.tenant_of(p_name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE WHEN strpos(p_name, '/') > 0 THEN split_part(p_name, '/', 1) ELSE 'default' END;

-- The stored name of what the caller calls so. Stored names are taken too, but for other tenants'.
CREATE FUNCTION waypost.own_name(p_name text) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_seen text := waypost.seen_tenant();
  v_name text := CASE WHEN strpos(p_name, '/') > 0 OR coalesce(v_seen, 'default') = 'default' THEN p_name ELSE v_seen || '/' || p_name END;
BEGIN
  IF strpos(v_name, '/') > 0 AND (waypost.tenant_of(v_name) IN ('', '*', 'default') OR waypost.tenant_of(v_name) <> v_seen
      OR strpos(substr(v_name, strpos(v_name, '/') + 1), '/') > 0) THEN
    PERFORM waypost.refuse('WP422', format('INVALID_INPUT: job_name: %s is no name of tenant %s', quote_literal(left(p_name, 80)),
      quote_literal(coalesce(v_seen, 'default'))), 'Give a name without a /, or TENANT/NAME of the chosen tenant.', 'job_name');
  END IF;
  RETURN v_name;
END $$;

-- Grants hold for whoever has the role's rights. They are the owner's to make, who may let others call these functions.
CREATE FUNCTION waypost.granted_role(p_role text) RETURNS regrole LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_role oid := (SELECT r.oid FROM pg_roles r WHERE r.rolname = p_role);
BEGIN
  IF v_role IS NULL THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: p_role: there is no role %s', coalesce(quote_literal(left(p_role, 80)), 'null')),
      'Give its name as pg_roles has it.', 'p_role');
  END IF;
  RETURN v_role;
END $$;

CREATE FUNCTION waypost.grant_tenant(p_role text, p_tenant text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_role regrole := waypost.granted_role(p_role);
BEGIN
  PERFORM waypost.check_tenant('p_tenant', p_tenant);
  INSERT INTO waypost.tenant_grants(role, tenant) VALUES (v_role, p_tenant) ON CONFLICT (role, tenant) DO UPDATE SET revoked_at = NULL;
  INSERT INTO waypost.audit(at, tenant, who, action, subject) VALUES (waypost.now(), p_tenant, session_user::text, 'tenant.grant', p_role);
END $$;

CREATE FUNCTION waypost.revoke_tenant(p_role text, p_tenant text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_role regrole := waypost.granted_role(p_role);
BEGIN
  UPDATE waypost.tenant_grants g SET revoked_at = waypost.now() WHERE g.role = v_role AND g.tenant = p_tenant AND g.revoked_at IS NULL;
  IF NOT FOUND THEN
    PERFORM waypost.refuse('WP404', format('NOT_FOUND: p_tenant: %s was not granted to role %s', coalesce(quote_literal(left(p_tenant, 80)), 'null'),
        quote_ident(p_role)),
      'Granted to it are: ' || coalesce((SELECT left(string_agg(g.tenant, ', ' ORDER BY g.tenant), 500) FROM waypost.tenant_grants g
        WHERE g.role = v_role AND g.revoked_at IS NULL), 'none'), 'p_tenant');
  END IF;
  INSERT INTO waypost.audit(at, tenant, who, action, subject) VALUES (waypost.now(), p_tenant, session_user::text, 'tenant.revoke', p_role);
END $$;

