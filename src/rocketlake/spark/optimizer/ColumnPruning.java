package rocketlake;

import java.io.File;
import java.lang.reflect.Field;
import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonFilterPushdownResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.collection.mutable.ListBuffer;

/**
 * Optimizer rule: a scan of the format rocketlake reads the columns and rows that the plan uses.
 *
 * Spark's Python data sources have no column pruning, and Spark keeps one plan of the source for all
 * queries of a DataFrame, a view or a table, whose filters it pushes into that plan. So the rule
 * replaces the scan at the end of the optimization by one of its own, with the columns and filters
 * of this query. The filters stay in Spark's plan: what the source leaves out is never wanted.
 *
 * It is compiled by Janino, which Spark has on its class path: Java without lambdas, and with raw
 * types. Whatever it does not know, it leaves as it is.
 */
public final class ColumnPruning extends Rule {
  // What the source is told by the metadata of the first column: see scan_columns.py.
  private static final String COLUMNS_KEY = "rocketlake.table";
  private static final String FILTERS_KEY = "rocketlake.pushesFilters";

  public TreeNode apply(TreeNode plan) {
    return visit((LogicalPlan) plan);
  }

  private LogicalPlan visit(LogicalPlan plan) {
    if (plan instanceof Project || plan instanceof Aggregate) {
      LogicalPlan child = (LogicalPlan) plan.children().apply(0);
      LogicalPlan narrow = narrowed(child, plan.references(), new ListBuffer());
      if (narrow != null) {
        return withChild(plan, narrow);
      }
    }
    if (plan instanceof DataSourceV2ScanRelation || plan instanceof Filter) {
      LogicalPlan same = narrowed(plan, null, new ListBuffer());
      if (same != null) {
        return same;
      }
    }
    final ColumnPruning rule = this;
    return (LogicalPlan) plan.mapChildren(new scala.runtime.AbstractFunction1() {
      public Object apply(Object child) {
        return rule.visit((LogicalPlan) child);
      }
    });
  }

  /**
   * Return filters over a scan of its own; null if it is no such plan.
   *
   * All columns are wanted if `wanted` is null.
   */
  private LogicalPlan narrowed(LogicalPlan plan, AttributeSet wanted, ListBuffer conditions) {
    if (plan instanceof Filter) {
      split(((Filter) plan).condition(), conditions);
      LogicalPlan child = (LogicalPlan) plan.children().apply(0);
      AttributeSet both = wanted == null ? null : wanted.$plus$plus(plan.references());
      LogicalPlan narrow = narrowed(child, both, conditions);
      return narrow == null ? null : withChild(plan, narrow);
    }
    if (!(plan instanceof DataSourceV2ScanRelation)) {
      return null;
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) plan;
    if (relation.scan().getClass() != PythonScan.class) {
      return null;
    }
    try {
      return replaced(relation, wanted, conditions);
    } catch (Exception error) {
      log().warn("a scan of rocketlake reads all columns: " + error);
      return null;
    }
  }

  private LogicalPlan replaced(
      DataSourceV2ScanRelation relation, AttributeSet wanted, ListBuffer conditions)
      throws Exception {
    PythonScan scan = (PythonScan) relation.scan();
    String name = (String) read(PythonScan.class, scan, "shortName");
    if (!"rocketlake".equals(name)) {
      return null;
    }
    CaseInsensitiveStringMap options =
        (CaseInsensitiveStringMap) read(PythonScan.class, scan, "options");
    org.apache.spark.sql.sources.Filter[] filters =
        (org.apache.spark.sql.sources.Filter[]) read(PythonScan.class, scan, "supportedFilters");
    if (filters.length > 0) {
      return null; // the source takes filters from this rule only
    }
    PythonDataSourceV2 whole = (PythonDataSourceV2) read(PythonScan.class, scan, "ds");
    StructType all = scan.readSchema();
    ListBuffer kept = keptColumns(relation.output(), wanted);
    org.apache.spark.sql.sources.Filter[] pushed = translated(conditions);
    StructType schema = scanColumns(kept, all, pushed.length > 0);
    PythonDataSourceV2 source = ownSource(whole, name, options, all, schema, pushed);
    Object[] members = new Object[relation.productArity()];
    for (int i = 0; i < members.length; i++) {
      members[i] = relation.productElement(i);
    }
    members[1] = new NarrowScan(source, name, schema, options, pushed, all);
    members[2] = kept.toList();
    return (LogicalPlan) relation.makeCopy(members);
  }

  /** Return the columns that are used, in order; a number if none is, for the rows are counted. */
  private static ListBuffer keptColumns(Seq output, AttributeSet wanted) {
    ListBuffer kept = new ListBuffer();
    AttributeReference number = null;
    for (int i = 0; i < output.length(); i++) {
      AttributeReference column = (AttributeReference) output.apply(i);
      if (wanted == null || wanted.contains(column)) {
        kept.addOne(column);
      }
      if (column.dataType() instanceof IntegerType
          || (column.dataType() instanceof LongType && number == null)) {
        number = number != null && number.dataType() instanceof IntegerType ? number : column;
      }
    }
    if (kept.length() == 0) {
      kept.addOne(number == null ? output.apply(0) : number);
    }
    return kept;
  }

  /** Return the schema of a scan; its first column tells the source of the table and the filters. */
  private static StructType scanColumns(ListBuffer kept, StructType all, boolean pushesFilters) {
    StructType schema = new StructType();
    for (int i = 0; i < kept.length(); i++) {
      StructField column = field(all, ((AttributeReference) kept.apply(i)).name());
      if (i == 0) {
        MetadataBuilder told = new MetadataBuilder().withMetadata(column.metadata());
        told.putString(COLUMNS_KEY, all.json()).putBoolean(FILTERS_KEY, pushesFilters);
        column = new StructField(column.name(), column.dataType(), column.nullable(), told.build());
      }
      schema = schema.add(column);
    }
    return schema;
  }

  /** Return the same source without a plan, or with one that the filters of this query made. */
  private static PythonDataSourceV2 ownSource(
      PythonDataSourceV2 whole,
      String name,
      CaseInsensitiveStringMap options,
      StructType all,
      StructType schema,
      org.apache.spark.sql.sources.Filter[] filters)
      throws Exception {
    PythonDataSourceCreationResult made =
        whole.getOrCreateDataSourceInPython(name, options, new scala.Some(all));
    PythonDataSourceV2 own = new PythonDataSourceV2();
    own.setShortName(name);
    Field field = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
    field.setAccessible(true);
    field.set(own, made);
    if (filters.length > 0) {
      scala.Option pushed = own.source().pushdownFiltersInPython(made, schema, filters);
      if (pushed.isDefined()) {
        own.setReadInfo(((PythonFilterPushdownResult) pushed.get()).readInfo());
      }
    }
    return own;
  }

  /** Return the conditions that a source may know. */
  private static org.apache.spark.sql.sources.Filter[] translated(ListBuffer conditions) {
    java.util.ArrayList found = new java.util.ArrayList();
    for (int i = 0; i < conditions.length(); i++) {
      scala.Option filter =
          DataSourceStrategy$.MODULE$.translateFilter((Expression) conditions.apply(i), true);
      if (filter.isDefined()) {
        found.add(filter.get());
      }
    }
    org.apache.spark.sql.sources.Filter[] filters =
        new org.apache.spark.sql.sources.Filter[found.size()];
    for (int i = 0; i < filters.length; i++) {
      filters[i] = (org.apache.spark.sql.sources.Filter) found.get(i);
    }
    return filters;
  }

  private static void split(Expression condition, ListBuffer into) {
    if (condition instanceof And) {
      split(((And) condition).left(), into);
      split(((And) condition).right(), into);
    } else {
      into.addOne(condition);
    }
  }

  private static LogicalPlan withChild(LogicalPlan plan, LogicalPlan child) {
    ListBuffer children = new ListBuffer();
    children.addOne(child);
    return (LogicalPlan) plan.withNewChildren(children.toList());
  }

  private static StructField field(StructType schema, String name) {
    StructField[] fields = schema.fields();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].name().equals(name)) {
        return fields[i];
      }
    }
    throw new IllegalStateException("no column " + name);
  }

  private static Object read(Class kind, Object from, String name) throws Exception {
    Field field = kind.getDeclaredField(name);
    field.setAccessible(true);
    return field.get(from);
  }

  /** A scan that says in `explain` what it reads, and how large it is at most. */
  public static final class NarrowScan extends PythonScan implements SupportsReportStatistics {
    private final CaseInsensitiveStringMap options;
    private final StructType schema;
    private final StructType all;

    public NarrowScan(
        PythonDataSourceV2 source,
        String name,
        StructType schema,
        CaseInsensitiveStringMap options,
        org.apache.spark.sql.sources.Filter[] filters,
        StructType all) {
      super(source, name, schema, options, filters);
      this.options = options;
      this.schema = schema;
      this.all = all;
    }

    public String description() {
      StringBuilder text = new StringBuilder("(Python)");
      String[] shown = {
        "path", "paths", "archive", "table", "topic", "topics", "topicPattern", "subscribe",
        "subscribePattern", "assign", "queueIds", "tags", "sql", "key", "startingOffsets",
        "endingOffsets", "startingTimestamp", "endingTimestamp"
      };
      for (int i = 0; i < shown.length; i++) {
        String value = options.get(shown[i]);
        if (value != null) {
          String part = value.length() > 80 ? value.substring(0, 77) + "..." : value;
          text.append(", ").append(shown[i]).append(": ").append(part);
        }
      }
      return text.toString();
    }

    /**
     * The files of the log; without body and properties the share of the columns in a row, as Spark
     * reckons it for tables of files.
     */
    public Statistics estimateStatistics() {
      final OptionalLong size = logSize();
      java.util.List names = java.util.Arrays.asList(schema.fieldNames());
      final double share = names.contains("body") || names.contains("properties")
          ? 1.0
          : (double) schema.defaultSize() / Math.max(all.defaultSize(), 1);
      return new Statistics() {
        public OptionalLong sizeInBytes() {
          return size.isPresent()
              ? OptionalLong.of(Math.max((long) (size.getAsLong() * share), 1L))
              : OptionalLong.empty();
        }

        public OptionalLong numRows() {
          return OptionalLong.empty();
        }
      };
    }

    private OptionalLong logSize() {
      String path = options.get("path");
      if (path == null || options.containsKey("archive") || options.containsKey("commitLogPath")) {
        return OptionalLong.empty();
      }
      String[] stores = new File(path).isDirectory() ? new String[] {path} : path.split(",");
      long size = 0;
      for (int i = 0; i < stores.length; i++) {
        String store = stores[i].trim();
        int end = store.indexOf('=');
        if (end > 0 && store.lastIndexOf('/', end) < 0) {
          store = store.substring(end + 1);
        }
        File[] files = new File(store, "commitlog").listFiles();
        if (files == null) {
          return OptionalLong.empty();
        }
        for (int j = 0; j < files.length; j++) {
          size += files[j].length();
        }
      }
      return OptionalLong.of(size);
    }
  }
}
