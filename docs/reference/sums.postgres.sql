WITH foldaway_records AS NOT MATERIALIZED (
  SELECT
    *
  FROM visits
), foldaway_read AS NOT MATERIALIZED (
  SELECT
    CAST("r"."variant" AS TEXT) AS "fa_t0",
    CASE
      WHEN NOT PG_TYPEOF("r"."variant") IN (
        CAST('text' AS regtype),
        CAST('varchar' AS regtype),
        CAST('smallint' AS regtype),
        CAST('integer' AS regtype),
        CAST('bigint' AS regtype)
      )
      THEN 1
      ELSE 0
    END AS "fa_u0",
    CAST("r"."country" AS TEXT) AS "fa_t1",
    CASE
      WHEN NOT PG_TYPEOF("r"."country") IN (
        CAST('text' AS regtype),
        CAST('varchar' AS regtype),
        CAST('smallint' AS regtype),
        CAST('integer' AS regtype),
        CAST('bigint' AS regtype)
      )
      THEN 1
      ELSE 0
    END AS "fa_u1",
    CAST("r"."user_id" AS TEXT) AS "fa_t2",
    CASE
      WHEN NOT PG_TYPEOF("r"."user_id") IN (
        CAST('text' AS regtype),
        CAST('varchar' AS regtype),
        CAST('smallint' AS regtype),
        CAST('integer' AS regtype),
        CAST('bigint' AS regtype)
      )
      THEN 1
      ELSE 0
    END AS "fa_u2",
    CAST("r"."revenue_before" AS DOUBLE PRECISION) AS "fa_x0",
    CAST("r"."revenue" AS DOUBLE PRECISION) AS "fa_x1",
    CAST("r"."converted" AS DOUBLE PRECISION) AS "fa_x2"
  FROM foldaway_records AS r
), foldaway_checked AS NOT MATERIALIZED (
  SELECT
    CASE WHEN "fa_t0" = 'control' THEN 0 WHEN "fa_t0" = 'treatment' THEN 1 ELSE -1 END AS "fa_c0",
    CASE
      WHEN "fa_t1" = 'de'
      THEN 0
      WHEN "fa_t1" = 'fr'
      THEN 1
      WHEN "fa_t1" = 'us'
      THEN 2
      ELSE -1
    END AS "fa_c1",
    "fa_x0" AS "fa_v0",
    "fa_x1" AS "fa_v1",
    "fa_x2" AS "fa_v2",
    CASE
      WHEN "fa_t0" IS NULL
      THEN 0
      WHEN NOT (
        "fa_t0" = 'control' OR "fa_t0" = 'treatment'
      )
      THEN 1
      ELSE -1
    END AS "fa_q0",
    CASE
      WHEN "fa_x0" IS NULL
      THEN 2
      WHEN "fa_x0" = CAST('NaN' AS DOUBLE PRECISION)
      THEN 3
      WHEN ABS("fa_x0") > 1.7976931348623157e308
      THEN 4
      WHEN ABS("fa_x0") > 1e40
      THEN 5
      ELSE -1
    END AS "fa_q1",
    CASE
      WHEN "fa_x1" IS NULL
      THEN 7
      WHEN "fa_x1" = CAST('NaN' AS DOUBLE PRECISION)
      THEN 8
      WHEN ABS("fa_x1") > 1.7976931348623157e308
      THEN 9
      WHEN ABS("fa_x1") > 1e40
      THEN 10
      ELSE -1
    END AS "fa_q2",
    CASE
      WHEN "fa_x2" IS NULL
      THEN 12
      WHEN "fa_x2" = CAST('NaN' AS DOUBLE PRECISION)
      THEN 13
      WHEN ABS("fa_x2") > 1.7976931348623157e308
      THEN 14
      WHEN ABS("fa_x2") > 1e40
      THEN 15
      ELSE -1
    END AS "fa_q3",
    CASE
      WHEN "fa_t1" IS NULL
      THEN 17
      WHEN NOT (
        "fa_t1" = 'de' OR "fa_t1" = 'fr' OR "fa_t1" = 'us'
      )
      THEN 18
      ELSE -1
    END AS "fa_q4",
    CASE WHEN "fa_t2" IS NULL THEN 19 WHEN "fa_u2" = 1 THEN 20 ELSE -1 END AS "fa_q5",
    "fa_t2" AS "fa_unit",
    ENCODE(SHA256(CONVERT_TO(CAST(:group_key AS TEXT) || "fa_t2", 'UTF8')), 'hex') AS "fa_hash"
  FROM foldaway_read
), foldaway_judged AS NOT MATERIALIZED (
  SELECT
    *,
    CASE
      WHEN "fa_q0" >= 0
      OR "fa_q1" >= 0
      OR "fa_q2" >= 0
      OR "fa_q3" >= 0
      OR "fa_q4" >= 0
      OR "fa_q5" >= 0
      THEN 1
      ELSE 0
    END AS "fa_bad"
  FROM foldaway_checked
  OFFSET '0'
), foldaway_good AS NOT MATERIALIZED (
  SELECT
    "fa_c0" AS "fa_arm",
    CAST(CAST((
      'x' || SUBSTR("fa_hash", 1, 3)
    ) AS BIT(12)) AS INT) AS "fa_group",
    "fa_unit",
    "fa_v1" AS "fa_y0",
    "fa_v2" AS "fa_y1"
  FROM foldaway_judged
  WHERE
    "fa_bad" < 1
), foldaway_centers AS (
  SELECT
    "fa_arm" AS "fa_of",
    COALESCE(AVG("fa_y0"), 0.0e0) AS "fa_m0",
    COALESCE(AVG("fa_y1"), 0.0e0) AS "fa_m1"
  FROM foldaway_good
  GROUP BY
    "fa_arm"
), foldaway_centered AS NOT MATERIALIZED (
  SELECT
    *,
    "fa_y0" - CASE
      WHEN "fa_arm" = 0
      THEN (
        SELECT
          "fa_m0"
        FROM foldaway_centers
        WHERE
          "fa_of" = 0
      )
      WHEN "fa_arm" = 1
      THEN (
        SELECT
          "fa_m0"
        FROM foldaway_centers
        WHERE
          "fa_of" = 1
      )
    END AS "fa_d0",
    "fa_y1" - CASE
      WHEN "fa_arm" = 0
      THEN (
        SELECT
          "fa_m1"
        FROM foldaway_centers
        WHERE
          "fa_of" = 0
      )
      WHEN "fa_arm" = 1
      THEN (
        SELECT
          "fa_m1"
        FROM foldaway_centers
        WHERE
          "fa_of" = 1
      )
    END AS "fa_d1"
  FROM foldaway_good
), foldaway_cells_0 AS (
  SELECT
    "fa_arm" AS "fa_arm_key",
    "fa_group" % 128 AS "fa_grp_key",
    COUNT(*) AS "fa_n",
    SUM("fa_d0") AS "fa_s0",
    SUM("fa_d1") AS "fa_s1",
    SUM("fa_d0" * "fa_d0") AS "fa_s2",
    SUM("fa_d1" * "fa_d1") AS "fa_s3",
    SUM(ABS("fa_y0")) AS "fa_s4",
    SUM(ABS("fa_y1")) AS "fa_s5"
  FROM foldaway_centered
  GROUP BY
    "fa_arm",
    "fa_group" % 128
), foldaway_lines AS (
  SELECT
    CAST('answer' AS TEXT) AS "part",
    CAST('94362142afd3aa04a3c6bc1ba45f12c87c593adbb1bae39f30fe22c1d5f0758b d8284445fdfddf7c20c093202c6b793c ' || SUBSTR(
      ENCODE(
        SHA256(
          CONVERT_TO(
            CAST(:group_key AS TEXT) || '94362142afd3aa04a3c6bc1ba45f12c87c593adbb1bae39f30fe22c1d5f0758b',
            'UTF8'
          )
        ),
        'hex'
      ),
      1,
      16
    ) AS TEXT) AS "level",
    CAST(0 AS BIGINT) AS "arm",
    CAST(0 AS BIGINT) AS "place",
    CAST(0 AS BIGINT) AS "grp",
    CAST(0 AS BIGINT) AS "n",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s0",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s1",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s2",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s3",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s4",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s5",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s6",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s7",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s8",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s9",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s10",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s11",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s12",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s13",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s14",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s15",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s16",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s17",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s18",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s19",
    CAST(0.0e0 AS DOUBLE PRECISION) AS "s20"
  UNION ALL
  SELECT
    'faults' AS "part",
    '' AS "level",
    "fa_c0" AS "arm",
    0 AS "place",
    0 AS "grp",
    CAST(SUM("fa_bad") AS BIGINT) AS "n",
    COALESCE(SUM(CASE WHEN "fa_q0" = 0 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s0",
    COALESCE(SUM(CASE WHEN "fa_q0" = 1 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s1",
    COALESCE(SUM(CASE WHEN "fa_q1" = 2 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s2",
    COALESCE(SUM(CASE WHEN "fa_q1" = 3 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s3",
    COALESCE(SUM(CASE WHEN "fa_q1" = 4 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s4",
    COALESCE(SUM(CASE WHEN "fa_q1" = 5 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s5",
    COALESCE(SUM(CASE WHEN "fa_q1" = 6 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s6",
    COALESCE(SUM(CASE WHEN "fa_q2" = 7 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s7",
    COALESCE(SUM(CASE WHEN "fa_q2" = 8 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s8",
    COALESCE(SUM(CASE WHEN "fa_q2" = 9 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s9",
    COALESCE(SUM(CASE WHEN "fa_q2" = 10 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s10",
    COALESCE(SUM(CASE WHEN "fa_q2" = 11 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s11",
    COALESCE(SUM(CASE WHEN "fa_q3" = 12 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s12",
    COALESCE(SUM(CASE WHEN "fa_q3" = 13 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s13",
    COALESCE(SUM(CASE WHEN "fa_q3" = 14 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s14",
    COALESCE(SUM(CASE WHEN "fa_q3" = 15 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s15",
    COALESCE(SUM(CASE WHEN "fa_q3" = 16 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s16",
    COALESCE(SUM(CASE WHEN "fa_q4" = 17 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s17",
    COALESCE(SUM(CASE WHEN "fa_q4" = 18 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s18",
    COALESCE(SUM(CASE WHEN "fa_q5" = 19 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s19",
    COALESCE(SUM(CASE WHEN "fa_q5" = 20 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s20"
  FROM foldaway_judged
  WHERE
    "fa_q0" >= 0
    OR "fa_q1" >= 0
    OR "fa_q2" >= 0
    OR "fa_q3" >= 0
    OR "fa_q4" >= 0
    OR "fa_q5" >= 0
  GROUP BY
    "fa_c0"
  UNION ALL
  SELECT
    'units' AS "part",
    '' AS "level",
    0 AS "arm",
    0 AS "place",
    0 AS "grp",
    CAST(COUNT(DISTINCT "fa_unit") AS BIGINT) AS "n",
    0.0e0 AS "s0",
    0.0e0 AS "s1",
    0.0e0 AS "s2",
    0.0e0 AS "s3",
    0.0e0 AS "s4",
    0.0e0 AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20"
  FROM foldaway_good
  UNION ALL
  SELECT
    'centers' AS "part",
    '' AS "level",
    "fa_of" AS "arm",
    0 AS "place",
    0 AS "grp",
    CAST(0 AS BIGINT) AS "n",
    COALESCE("fa_m0", 0.0e0) AS "s0",
    COALESCE("fa_m1", 0.0e0) AS "s1",
    0.0e0 AS "s2",
    0.0e0 AS "s3",
    0.0e0 AS "s4",
    0.0e0 AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20"
  FROM foldaway_centers
  UNION ALL
  SELECT
    'sums 0 of 0' AS "part",
    '' AS "level",
    "fa_arm_key" AS "arm",
    0 AS "place",
    "fa_grp_key" AS "grp",
    CAST("fa_n" AS BIGINT) AS "n",
    COALESCE("fa_s0", 0.0e0) AS "s0",
    COALESCE("fa_s1", 0.0e0) AS "s1",
    0.0e0 AS "s2",
    0.0e0 AS "s3",
    0.0e0 AS "s4",
    0.0e0 AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20"
  FROM foldaway_cells_0
  UNION ALL
  SELECT
    'sums 0 of 0' AS "part",
    '' AS "level",
    "fa_arm_key" AS "arm",
    0 AS "place",
    -1 AS "grp",
    CAST(SUM("fa_n") AS BIGINT) AS "n",
    COALESCE(SUM("fa_s2"), 0.0e0) AS "s0",
    COALESCE(SUM("fa_s3"), 0.0e0) AS "s1",
    COALESCE(SUM("fa_s4"), 0.0e0) AS "s2",
    COALESCE(SUM("fa_s5"), 0.0e0) AS "s3",
    0.0e0 AS "s4",
    0.0e0 AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20"
  FROM foldaway_cells_0
  GROUP BY
    "fa_arm_key"
)
SELECT
  "part",
  "level",
  "arm",
  "place",
  "grp",
  "n",
  "s0",
  "s1",
  "s2",
  "s3",
  "s4",
  "s5",
  "s6",
  "s7",
  "s8",
  "s9",
  "s10",
  "s11",
  "s12",
  "s13",
  "s14",
  "s15",
  "s16",
  "s17",
  "s18",
  "s19",
  "s20",
  "n" + "s0" + "s1" + "s2" + "s3" + "s4" + "s5" + "s6" + "s7" + "s8" + "s9" + "s10" + "s11" + "s12" + "s13" + "s14" + "s15" + "s16" + "s17" + "s18" + "s19" + "s20" AS "total",
  COUNT(*) OVER () AS "lines"
FROM foldaway_lines;
